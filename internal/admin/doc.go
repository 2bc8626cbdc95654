// Package admin is the relay's face towards its operator: metrics, probes and a
// look at clients and resources, over HTTP on a loopback address or a Unix socket;
// the page for people at /, which needs no JavaScript and with it follows what happens (ui.go);
// on the same connections, over gRPC, what tools ask for: CSDS, health, reflection and channelz;
// and, where it is asked for, a second face of probes and metrics alone, which may be
// on any address.
//
// It owns the metrics registry, the HTTP server and the gRPC server behind it, and nothing else: counters grow by
// calls of the streams (upstream.Observer, downstream.Observer), and everything about state
// is read from the relay at each request. On POST it can release the removals that the
// guard holds back, drain the relay, end one client's stream or have the client sent everything again, change the level
// of the log and start a reload; nothing else changes.
// Of resources' bodies it shows those in which a client differs from the relay, with what may be secret
// redacted (internal/readable), and over CSDS others where the configuration wants that; none of a Secret.
// Metric labels are closed sets: a type's short name, a reason, a protocol; never a node or a resource name.
// Groups go by their hashed names, the first 100 of them, and the others are summed.
//
// Limitations: there is no authentication, so everything except probes and metrics is on loopback
// and Unix sockets only; /resources sorts all names of a type at each call, and is for people, not
// for polling. The page shows the clients as they were a moment ago, of 10,000 a second or two, while much happens.
package admin
