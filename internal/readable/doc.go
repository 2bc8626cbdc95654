// Package readable turns the bodies of resources into JSON that people may see, or clears them of what nobody may see, and
// knows what a server's services and messages look like.
//
// It knows the messages of Envoy's API and of xDS by their descriptors, which are embedded as a compressed set: the
// generated code of all of them would make the program several times as large. Whatever may be a secret is replaced by
// "[redacted]": fields that are marked as sensitive, data sources that are inline, Secrets inside of other messages. What
// it does not know it shows by type and size only. It starts no goroutine and reads no clock.
//
// Limitations: a secret in a field that Envoy's API does not mark is shown. Fields that are newer than the
// descriptors are counted, not shown.
package readable
