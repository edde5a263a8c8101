"""How a broker is seen from outside: metrics, health, and the HTTP listener that serves them."""
