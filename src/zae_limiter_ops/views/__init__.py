"""What commands, the service and the page show: plain records, and their forms as text and JSON.

Each is computed from what was read and a moment, and knows neither a terminal nor a web framework.
"""
