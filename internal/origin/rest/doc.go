// Package rest owns control planes that speak xDS over REST only (REST-11 to REST-16): it polls one for what the relay's
// groups want, and serves the answers in memory, where the relay finds them like those of any other control plane.
//
// Each of the relay's streams has a Hub, and for each of its lanes a poller. Only one of a group asks for a type at a time.
// What goes wrong ends the stream, so that outages, back-off, suspicion and the mass-removal guard are those of the relay.
// It never follows a redirect, and takes an answer whole or not at all.
//
// Limitations: JSON only. There is no order between types, since each is polled for itself. A TTL and aliases are refused.
// That a name was seen is forgotten when the process ends, and when nobody has asked for it for some minutes. A loop of
// relays is not found (NODE-11), since no header of theirs goes up.
package rest
