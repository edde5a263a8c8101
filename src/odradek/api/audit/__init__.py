"""Events of a cluster's security as records: logins, denials, administrative changes.

A broker whose audit topic is off loads nothing of this.
"""
