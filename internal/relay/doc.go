// Package relay puts a relay together: from a configuration it makes the groups,
// each with its Hub and its streams to the control plane, and the server that
// clients connect to.
//
// It owns the groups: which client belongs to which, and how long each lives. It
// never looks at a resource, and holds no state of a stream; those belong to the
// packages it joins, which do not know each other. What needs no goroutine for
// that is exported, so that a test can join the same packages without any edge:
// Grouping, and what each package is told about the configuration.
//
// Limitations: of a new configuration it takes what config.Keeping leaves; the rest waits for a
// restart. Clients of a group are believed about the relays they have come through
// (NODE-11): one that lies can have the group's stream refused, so that clients whom
// others must not depend on need a group of their own.
package relay
