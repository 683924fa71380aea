"""Plugins and parts that break the rules, each in one way: dpflbench must refuse every one of them by exactly one clear
line.
"""
