"""What a broker's processor time and memory do as the numbers of partitions, groups, connections and producers grow."""
