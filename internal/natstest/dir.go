package natstest

import "path/filepath"

// Dir is where the i-th server stores its streams. What is there may be changed
// while the server is down.
func (c *Cluster) Dir(i int) string { return filepath.Join(c.nodes[i].dir, "data") }
