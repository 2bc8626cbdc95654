package downstream

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// The v2 transport (V2-1 to V2-4). Its messages have the fields of the current ones under the same numbers, without those
// that were added later. So requests are read as current ones, and responses go out without TTLs and errors (session.Stream.V2);
// whatever else is new in them a v2 client skips as fields that it does not know.

// foreignToV2 refuses a request that asks by a field that v2 lacks: a v2 server would read it as one for everything.
func foreignToV2(request proto.Message) *session.End {
	locators := 0
	switch req := request.(type) {
	case *discovery.DeltaDiscoveryRequest:
		locators = len(req.GetResourceLocatorsSubscribe()) + len(req.GetResourceLocatorsUnsubscribe())
	case *discovery.DiscoveryRequest:
		locators = len(req.GetResourceLocators())
	}
	if locators == 0 {
		return nil
	}
	return &session.End{Reason: session.BadRequest, Message: fmt.Sprintf("xds-relay: %d resource locators on the v2 transport, which has none; subscribe by resource name, or use the v3 services", locators)}
}
