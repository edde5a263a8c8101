"""A broker under steady work for a long time: does anything grow?"""
