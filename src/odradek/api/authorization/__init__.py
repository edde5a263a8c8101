"""The guards between a request and its handler where the broker has an authorizer.

A guard refuses the request, or the entries that the client may not name, before the handler; afterwards it hides what
the client may not see. A broker without an authorizer loads nothing of this.
"""
