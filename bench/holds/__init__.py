"""How long single requests and jobs hold a broker's event loop."""
