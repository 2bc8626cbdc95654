package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/service"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
)

// question is one request.
type question struct {
	typ     cache.TypeURL
	node    *core.Node
	headers []header.Header // of the group
	names   []string        // none: everything
	version string          // what is here of exactly this
	wait    time.Duration   // how long the answer may be put off
}

// answer is one that can be used. Without a body nothing has changed.
type answer struct{ body []byte }

// The bounds that have no setting.
const (
	quoted     = 200     // bytes of an answer that is quoted to people
	mostQuoted = 4 << 10 // bytes that are read for that, so that no secret is cut in two
)

// client asks the control plane.
type client struct {
	http *http.Client
	o    *Options
}

func newClient(o *Options) *client {
	return &client{o: o, http: &http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// urlOf is where a type is asked for; empty: it is not, over REST.
func (o *Options) urlOf(t cache.TypeURL) string {
	s, ok := service.Of(t)
	if !ok || s.RESTPath() == "" {
		return ""
	}
	return strings.TrimSuffix(o.URL, "/") + s.RESTPath()
}

// ask asks once. A failure is how the relay's stream is to end.
func (c *client) ask(ctx context.Context, q *question) (answer, *session.End) {
	url := c.o.urlOf(q.typ)
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout+q.wait)
	defer cancel()
	headers, err := c.headers(q)
	if err != nil {
		return answer{}, unreachable("cannot get the headers for the control plane: %v", err)
	}
	resp, err := c.post(ctx, url, q, headers)
	if err != nil {
		return answer{}, unreachable("POST %s: %v", url, c.why(ctx, q, err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && q.version != "":
		return answer{}, nil
	case resp.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, mostQuoted)) // as much as there is
		return answer{}, refusal(url, resp, text, headers)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.o.MaxBytes)+1))
	switch {
	case err != nil:
		return answer{}, unreachable("POST %s: the answer breaks off: %v", url, c.why(ctx, q, err))
	case len(body) > c.o.MaxBytes:
		return answer{}, refused("POST %s: the answer is larger than upstream.max_receive_bytes (%d bytes)", url, c.o.MaxBytes)
	case !xdsjson.IsObject(body):
		return answer{}, refusal(url, resp, page(body), headers)
	}
	return answer{body}, nil
}

// page is the beginning of a text, if that is a page, as proxies make them. Anything else may be a response behind something
// that does not belong there, and may hold secrets (REST-16).
func page(text []byte) []byte {
	if !bytes.HasPrefix(bytes.TrimSpace(text[:min(len(text), mostQuoted)]), []byte("<")) {
		return nil
	}
	return text[:min(len(text), mostQuoted)]
}

// headers are those of the relay, and of the group.
func (c *client) headers(q *question) (headers []header.Header, err error) {
	if c.o.Headers != nil {
		headers, err = c.o.Headers()
	}
	return append(headers, q.headers...), err
}

func (c *client) post(ctx context.Context, url string, q *question, headers []header.Header) (*http.Response, error) {
	body, err := xdsjson.AppendRequest(nil, &discovery.DiscoveryRequest{VersionInfo: q.version, Node: q.node, ResourceNames: q.names, TypeUrl: string(q.typ)})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "xds-relay")
	if q.wait > 0 {
		req.Header.Set("Prefer", fmt.Sprintf("wait=%d", int(q.wait.Seconds())))
	}
	for _, h := range headers {
		req.Header.Add(h.Name, string(h.Value))
	}
	return c.http.Do(req)
}

// why is an error without the URL, which is said already, and with the time that was too long.
func (c *client) why(ctx context.Context, q *question, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v; see upstream.rest.timeout", c.o.Timeout+q.wait)
	}
	var of interface{ Unwrap() error }
	if errors.As(err, &of) && strings.HasPrefix(err.Error(), "Post ") {
		return of.Unwrap()
	}
	return err
}

// refusal is what an answer means that is neither a 304 that was asked for nor a 200 with something like JSON (REST-13).
func refusal(url string, resp *http.Response, text []byte, headers []header.Header) *session.End {
	said := header.Hide(strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " "), headers)
	if len(said) > quoted {
		said = strings.ToValidUTF8(said[:quoted], "") + "…"
	}
	why := resp.Status
	switch {
	case resp.StatusCode == http.StatusOK:
		why += ", and is no JSON object"
	case resp.StatusCode == http.StatusNotModified:
		why += ", though it was shown no version"
	case resp.Header.Get("Location") != "":
		why += fmt.Sprintf(", to %.100q; redirects are not followed: write the address where it answers", header.Hide(resp.Header.Get("Location"), headers))
	}
	if said != "" {
		why += ": " + said
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &session.End{Reason: session.Forbidden, Message: fmt.Sprintf("POST %s: %s", url, why)}
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unreachable("POST %s: %s", url, why)
	}
	return refused("POST %s: %s", url, why)
}

// unreachable: it says nothing about the type (H-39).
func unreachable(format string, args ...any) *session.End {
	return &session.End{Reason: session.Unreachable, Message: fmt.Sprintf(format, args...)}
}

// refused: the control plane has answered, and the type may be the reason (H-39).
func refused(format string, args ...any) *session.End {
	return &session.End{Reason: session.RefusedUpstream, Message: fmt.Sprintf(format, args...)}
}
