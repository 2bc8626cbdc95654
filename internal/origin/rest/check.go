package rest

import (
	"context"
	"errors"
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// Asks reports whether a type can be asked for over REST.
func (o *Options) Asks(t cache.TypeURL) bool { return o.urlOf(t) != "" }

// Count asks once for everything of a type, and returns how many resources there are.
func Count(ctx context.Context, o *Options, t cache.TypeURL, node *core.Node) (int, error) {
	a, end := newClient(o).ask(ctx, &question{typ: t, node: node})
	if end != nil {
		return 0, errors.New(end.Message)
	}
	d, err := o.decode(t, a.body)
	if err != nil {
		return 0, fmt.Errorf("POST %s: the answer %w", o.urlOf(t), err)
	}
	return len(d.resources), nil
}
