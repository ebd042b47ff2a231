"""How fast this is: the engines, what they cost as they grow, many cores, other frameworks.

Whatever is compared takes turns within one run, so that what else the machine does falls on all of it alike.
"""
