// Package admin is the relay's face towards its operator: metrics, probes and a
// look at clients and resources, over HTTP on a loopback address or a Unix socket;
// and, where it is asked for, a second face of probes and metrics alone, which may be
// on any address.
//
// It owns the metrics registry and the HTTP server, and nothing else: counters
// grow because the streams tell it what happens (upstream.Observer,
// downstream.Observer), and everything about state is asked of the relay at the
// moment somebody looks. All that it changes, on POST, is what is held back and how much is
// logged, and it never shows a resource's body, so that no secret can
// leave through it. Metric labels are closed sets: a type's short name, a reason,
// a protocol; never a node or a resource name. Groups go by their hashed names, the first
// 100 of them, and the others are summed.
//
// Limitations: there is no authentication, so only loopback and Unix sockets are
// permitted for what is more than probes and metrics; /resources sorts all names of a type at each
// call, and is for people, not for polling.
package admin
