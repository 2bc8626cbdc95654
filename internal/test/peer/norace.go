//go:build !race

package peer

// Race tells whether the test has the race detector, and so the relay.
const Race = false
