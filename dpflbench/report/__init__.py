"""Records to what people read: a pure function of results.

view.py          the cells of a results folder by column and algorithm; everything else reads this
statistics.py    paired differences, exact tests, critical differences
chance.py        which columns nobody has learnt anything in
comparison.py    who is best, by how much and how surely
headline.py      that in a line for each mechanism
labels.py        words and numbers, made safe for each place they go to
tables/          one file a question: utility, differences, gaps, costs, who_pays, origin
charts/          curves, clients, winners describe; draw.py draws; files.py and page.py place the drawing
sections.py      what plugins add
page.py          the HTML page, downloads.py what it links; latex.py, export.py (CSV, Parquet): the other forms
write.py         all of it on disk and on the terminal
merge.py         several results folders as one, before all this
"""
