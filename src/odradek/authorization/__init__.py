"""Who may do what: ACLs, the index that decides by them, and decisions cached for each connection. Pure."""
