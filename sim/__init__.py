"""Parts of simulations: their time, processes that stop and die in it, and exact arithmetic.

``schedule`` has calls at their moments, ``virtual_time`` an event loop in which a timer costs
nothing, ``reference`` a limit in exact fractions. Only ``virtual_time.virtual_time`` imports the
package.
"""
