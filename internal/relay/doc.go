// Package relay puts a relay together: from a configuration it makes the groups,
// each with its Hub and its streams to the control plane, and the server that
// clients connect to.
//
// It owns the groups: which client belongs to which, and how long each lives. It
// never looks at a resource, and holds no state of a stream; those belong to the
// packages it joins, which do not know each other. The parts that need no
// goroutine are exported, so that a test can join the same packages without any
// edge: Grouping, and the configuration of each package. Calls of other services are led through here (passthrough.go),
// and load reports added up (loads.go).
//
// Limitations: when the configuration changes, keys that config.Keeping puts back wait for a
// restart. Clients of a group are believed about the relays they have come through (NODE-11):
// one that lies can have the group's stream refused. So clients that are not trusted need a
// group of their own.
package relay
