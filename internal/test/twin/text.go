package twin

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// text is a message on one line.
func text(m proto.Message) string {
	switch m := m.(type) {
	case *discovery.DeltaDiscoveryRequest:
		return fmt.Sprintf("delta %s %s sub %v unsub %v init %v nack %q", typeOf(m), m.GetResponseNonce(),
			m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe(), m.GetInitialResourceVersions(), m.GetErrorDetail().GetMessage())
	case *discovery.DiscoveryRequest:
		return fmt.Sprintf("sotw %s %s names %v version %q nack %q", typeOf(m), m.GetResponseNonce(),
			m.GetResourceNames(), m.GetVersionInfo(), m.GetErrorDetail().GetMessage())
	case *discovery.DeltaDiscoveryResponse:
		var resources []string
		for _, r := range m.GetResources() {
			what := fmt.Sprintf("%s@%.8s%q", r.GetName(), r.GetVersion(), r.GetAliases())
			if r.GetResource() == nil {
				what += "~"
			}
			if r.GetTtl() != nil {
				what += fmt.Sprint(r.GetTtl().AsDuration())
			}
			resources = append(resources, what)
		}
		return fmt.Sprintf("resp %s %s set %v removed %v errors %v", typeOf(m), m.GetNonce(), resources, m.GetRemovedResources(), m.GetResourceErrors())
	case *discovery.DiscoveryResponse:
		var resources []string
		for _, r := range m.GetResources() {
			resources = append(resources, fmt.Sprintf("%q", r.GetValue()))
		}
		return fmt.Sprintf("resp %s %s set %v errors %v", typeOf(m), m.GetNonce(), resources, m.GetResourceErrors())
	}
	return fmt.Sprint(m)
}

// typeOf is the short name of a message's type.
func typeOf(m interface{ GetTypeUrl() string }) string { return kindOf(m.GetTypeUrl()).name }
