package twin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// text is a message on one line.
func text(m proto.Message) string {
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		return line("delta", m.GetTypeUrl(), m.GetResponseNonce(), "sub", m.GetResourceNamesSubscribe(), "unsub", m.GetResourceNamesUnsubscribe(),
			"init", pairs(m.GetInitialResourceVersions()), "nack", m.GetErrorDetail().GetMessage())
	case *discovery.DiscoveryRequest:
		return line("sotw", m.GetTypeUrl(), m.GetResponseNonce(), "names", m.GetResourceNames(), "version", m.GetVersionInfo(), "nack", m.GetErrorDetail().GetMessage())
	case *discovery.DeltaDiscoveryResponse:
		var resources []string
		for _, r := range m.GetResources() {
			resources = append(resources, fmt.Sprintf("%s@%.8s%q%s", r.GetName(), r.GetVersion(), r.GetAliases(), lifetime(r)))
		}
		return line("resp", m.GetTypeUrl(), m.GetNonce(), "set", resources, "removed", m.GetRemovedResources(), "errors", errorText(m.GetResourceErrors()))
	case *discovery.DiscoveryResponse:
		var resources []string
		for _, r := range m.GetResources() {
			resources = append(resources, fmt.Sprintf("%q", r.GetValue()))
		}
		return line("resp", m.GetTypeUrl(), m.GetNonce(), "set", resources, "errors", errorText(m.GetResourceErrors()))
	}
	return fmt.Sprint(m)
}

func line(verb, url, nonce string, rest ...any) string {
	k, _ := named(url)
	words := []string{verb, k.name, nonce}
	for i := 0; i+1 < len(rest); i += 2 {
		if v := fmt.Sprint(rest[i+1]); v != "" && v != "[]" {
			words = append(words, fmt.Sprint(rest[i], v))
		}
	}
	return strings.Join(words, " ")
}

func pairs(m map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s@%.8s", name, m[name]))
	}
	return all
}

func errorText(errors []*discovery.ResourceError) (all []string) {
	for _, e := range errors {
		all = append(all, fmt.Sprintf("%s:%d", e.GetResourceName().GetName(), e.GetErrorDetail().GetCode()))
	}
	return all
}

// lifetime is the TTL of a resource, and ~ if it has no body.
func lifetime(r *discovery.Resource) (text string) {
	if r.GetResource() == nil {
		text = "~"
	}
	if r.GetTtl() != nil {
		text += fmt.Sprintf("(%v)", r.GetTtl().AsDuration())
	}
	return text
}
