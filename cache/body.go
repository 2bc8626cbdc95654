package cache

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// fieldBodyName is the field with the name in all messages that have one.
const fieldBodyName = 1

// BodyName reads a resource's name from its body: the last occurrence of the type's
// name field (TRANSLATE-2). The message must be sound as far as its top level goes.
func BodyName(t TypeURL, body []byte) (name string, ok bool) {
	if table[t].unnamed {
		return "", false
	}
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return "", false
		}
		body = body[n:]
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return "", false
		}
		if num == fieldBodyName && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(body)
			name, ok = string(v), utf8.Valid(v) && len(v) > 0
		}
		body = body[n:]
	}
	return name, ok
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
	for b := cluster; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return name
		}
		b = b[n:]
		switch {
		case num == fieldClusterName && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return name
			}
			name, b = string(v), b[n:]
		case num == fieldClusterType && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return name
			}
			eds, b = v == discoveryTypeEDS, b[n:]
		case num == fieldClusterEDS && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return name
			}
			if s := stringField(v, fieldEDSServiceName); s != "" {
				service = s
			}
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return name
			}
			b = b[n:]
		}
	}
	switch {
	case !eds:
		return ""
	case service != "":
		return service
	default:
		return name
	}
}

// stringField is the last occurrence of a length-delimited field, or "".
func stringField(b []byte, field protowire.Number) (s string) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return s
		}
		b = b[n:]
		if num == field && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return s
			}
			s, b = string(v), b[n:]
			continue
		}
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 {
			return s
		}
		b = b[n:]
	}
	return s
}
