"""Who looks at finished work: a second accountant, the recount of a record, an audit, published claims."""
