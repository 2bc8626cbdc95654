// Package csds is the Client Status Discovery Service of a relay: what grpcdebug, istioctl and other tools ask
// xDS clients and control planes for, over gRPC and as JSON.
//
// It owns the service and the form of its answers, reads everything from the relay at each call, and keeps
// nothing between two calls. Without matchers a relay is an xDS client, and shows one group's view of its control
// plane (CSDS-3). With matchers it is a control plane, and shows each client's stream (CSDS-4). It shows no body
// of a Secret, and no version of one (CSDS-5).
//
// An answer may have a million names. It is composed in wire form, as pieces of which equal ones are kept once,
// since most clients have the same: so a thousand clients that are in step take little more memory than one.
//
// Requests and answers are read and written without the generated code of the service, which would link all of
// Envoy's API into the program. Bodies are looked into by embedded descriptors (package readable).
//
// Limitations: one answer is composed at a time. Who asks for bodies of resources gets only those of messages of
// Envoy's API, and without the parts of other types in them.
package csds
