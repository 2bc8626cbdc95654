package logging

import (
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// What a line shows of what peers send.

// MaxNames bounds the names in one line, and maxName how long each may be, in bytes.
const (
	MaxNames = 10
	maxName  = 200
)

// First are the first few names of a list, each clipped.
func First(names []string) []string {
	first := slices.Clone(names[:min(len(names), MaxNames)])
	for i, name := range first {
		first[i] = strings.ToValidUTF8(name[:min(len(name), maxName)], "")
	}
	return first
}

// Version is a version as the log may show it. That of a secret type is hidden, since a reader
// could check guesses of a weak secret against it.
func Version(types cache.Types, t cache.TypeURL, version string) string {
	if version != "" && types.Of(t).Secret {
		return "[redacted]"
	}
	return version
}

// Request are the fields of a request of either variant, without its node and any version of a
// secret type. nack is what it says of a response that it rejects.
func Request(types cache.Types, req proto.Message, nack string) []any {
	switch r := req.(type) {
	case *discovery.DeltaDiscoveryRequest:
		return []any{
			"type", cache.TypeURL(r.GetTypeUrl()), "subscribe", len(r.GetResourceNamesSubscribe()), "first", First(r.GetResourceNamesSubscribe()),
			"unsubscribe", len(r.GetResourceNamesUnsubscribe()), "versions", len(r.GetInitialResourceVersions()),
			"nonce", r.GetResponseNonce(), "nack", nack,
		}
	case *discovery.DiscoveryRequest:
		return []any{
			"type", cache.TypeURL(r.GetTypeUrl()), "names", len(r.GetResourceNames()), "first", First(r.GetResourceNames()),
			"version", Version(types, cache.TypeURL(r.GetTypeUrl()), r.GetVersionInfo()), "nonce", r.GetResponseNonce(), "nack", nack,
		}
	}
	return nil
}
