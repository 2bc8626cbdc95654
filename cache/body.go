package cache

import (
	"cmp"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// fieldBodyName is the field with the name in all messages that have one.
const fieldBodyName = 1

// BodyName reads a resource's name from its body: the last occurrence of the type's
// name field (TRANSLATE-2). The message must be sound as far as its top level goes.
func BodyName(t TypeURL, body []byte) (name string, ok bool) {
	if t.row().unnamed {
		return "", false
	}
	name, sound := stringField(body, fieldBodyName)
	return name, sound && name != "" && utf8.ValidString(name)
}

// The fields of envoy.config.cluster.v3.Cluster that tell its endpoints' name.
const (
	fieldClusterName    = 1
	fieldClusterType    = 2
	fieldClusterEDS     = 3
	fieldEDSServiceName = 2 // of Cluster.EdsClusterConfig
	discoveryTypeEDS    = 3 // Cluster.DiscoveryType
)

// endpointName reads a Cluster leniently (ORDER-6): if it is of type EDS, its
// service_name, else its name; on parse trouble its name as far as it was read.
func endpointName(cluster []byte) string {
	var name, service string
	eds := false
	sound := eachField(cluster, func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case num == fieldClusterName && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			name = string(v)
		case num == fieldClusterType && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			eds = v == discoveryTypeEDS
		case num == fieldClusterEDS && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			last, _ := stringField(v, fieldEDSServiceName)
			service = cmp.Or(last, service)
		}
	})
	switch {
	case !sound:
		return name
	case !eds:
		return ""
	}
	return cmp.Or(service, name)
}

// The fields of envoy.config.endpoint.v3.ClusterLoadAssignment that say for how long a client uses it.
const (
	fieldPolicy     = 4
	fieldStaleAfter = 4 // of ClusterLoadAssignment.Policy
)

// goesStale reads a ClusterLoadAssignment leniently (TTL-13): whether its policy sets
// endpoint_stale_after. On parse trouble it does not.
func goesStale(assignment []byte) bool {
	set, sound := false, true
	outer := eachField(assignment, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != fieldPolicy || typ != protowire.BytesType {
			return
		}
		policy, _ := protowire.ConsumeBytes(value)
		inner := eachField(policy, func(num protowire.Number, typ protowire.Type, _ []byte) {
			set = set || num == fieldStaleAfter && typ == protowire.BytesType
		})
		sound = sound && inner
	})
	return set && sound && outer
}

// stringField is the last occurrence of a length-delimited field, or "", as far as the message can
// be read. sound reports whether that is all of it.
func stringField(message []byte, field protowire.Number) (s string, sound bool) {
	sound = eachField(message, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == field && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(value)
			s = string(v)
		}
	})
	return s, sound
}

// eachField calls do for each field of a message, with its encoded value, as far as the
// message can be read. It reports whether that is all of it.
func eachField(message []byte, do func(num protowire.Number, typ protowire.Type, value []byte)) (sound bool) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return false
		}
		do(num, typ, message[:n])
		message = message[n:]
	}
	return true
}
