"""The pages of the console: functions from a request to a response."""
