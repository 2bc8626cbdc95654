package upstream

import (
	"context"
	"log/slog"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file logs requests and responses for debugging, without bodies and the node. Versions of
// secrets are not logged either, since one could check a guess of a weak secret against them.

// debugs reports whether messages are logged at all. It is asked before a line is composed.
func debugs(log *slog.Logger) bool { return log.Enabled(context.Background(), slog.LevelDebug) }

func (c *Client) tellRequest(log *slog.Logger, req proto.Message) {
	rejects := req.(interface{ GetErrorDetail() *statuspb.Status })
	log.Debug("upstream request", logging.Request(c.hub.TypeTable(), req, rejects.GetErrorDetail().GetMessage())...)
}

func (c *Client) tellResponse(log *slog.Logger, d *session.Response, bytes int) {
	var names []string
	for _, r := range d.Update.Set[:min(len(d.Update.Set), logging.MaxNames)] {
		names = append(names, r.Name)
	}
	log.Debug("upstream response", "type", d.TypeURL, "nonce", d.Nonce, "version", logging.Version(c.hub.TypeTable(), d.TypeURL, d.Version),
		"resources", len(d.Update.Set)+len(d.Bodyless), "first", names, "removed", len(d.Update.Removed), "errors", len(d.Update.Errors), "bytes", bytes)
}
