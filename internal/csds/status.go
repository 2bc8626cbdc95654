package csds

// The enums of an answer, by their numbers and names in the protocol. The generated code of the service would link all of
// Envoy's API into the program.

// clientStatus is envoy.admin.v3.ClientResourceStatus: how a client of a control plane is with a resource.
type clientStatus int32

const (
	clientUnknown clientStatus = iota
	clientRequested
	clientDoesNotExist
	clientAcked
	clientNacked
	clientReceivedError
	clientTimeout
)

var clientStatuses = []string{
	clientUnknown: "UNKNOWN", clientRequested: "REQUESTED", clientDoesNotExist: "DOES_NOT_EXIST", clientAcked: "ACKED", clientNacked: "NACKED",
	clientReceivedError: "RECEIVED_ERROR", clientTimeout: "TIMEOUT",
}

// configStatus is envoy.service.status.v3.ConfigStatus: how far a control plane is with a resource of a client.
type configStatus int32

const (
	configUnknown configStatus = iota
	configSynced
	configNotSent
	configStale
	configError
)

var configStatuses = []string{configUnknown: "UNKNOWN", configSynced: "SYNCED", configNotSent: "NOT_SENT", configStale: "STALE", configError: "ERROR"}
