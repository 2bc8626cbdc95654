// Package origin owns a control plane within the process: a Hub that a feeder fills, served by the relay's own server
// in memory. For the relay it is a relay above it, reached through a dialer of its own: versions, the end of a set and
// explicit absence (MISS-5) are there, and the data path knows nothing of it.
//
// It has no policy and no shares: its one client is the relay, which has both. It never asks anybody for a resource.
//
// Limitation: what is published is held twice, here and in the groups that want it.
package origin
