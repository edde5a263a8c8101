"""A request around its handler: declaration, session, context, quotas, and the response or failure."""
