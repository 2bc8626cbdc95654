package admin

import (
	"bufio"
	"net/http"
	"strconv"
	"time"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// Programs ask for all clients again and again, and there may be many thousands. So a page for them is written by hand,
// client by client, as encoding/json would write it, which takes several times as long.

// clientPage is a page of /clients.
type clientPage struct {
	Total    int                 `json:"total"`
	Clients  []downstream.Client `json:"clients"`
	Continue string              `json:"continue,omitempty"`
}

// stream writes the page without another copy of it.
func (p *clientPage) stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	to := bufio.NewWriterSize(w, 32<<10) // it keeps the first error, which means that whoever asked is gone
	_, _ = to.WriteString(`{"total":` + strconv.Itoa(p.Total) + `,"clients":[`)
	var o object
	for i := range p.Clients {
		if i > 0 {
			_ = to.WriteByte(',')
		}
		o = o[:0]
		o.client(&p.Clients[i])
		_, _ = to.Write(o)
	}
	_ = to.WriteByte(']')
	if p.Continue != "" {
		_, _ = to.Write(readable.AppendText([]byte(`,"continue":`), p.Continue))
	}
	_, _ = to.WriteString("}\n")
	_ = to.Flush()
}

// object is a JSON object as it is written.
type object []byte

func (o *object) client(c *downstream.Client) {
	o.open()
	o.number("stream", int64(c.Stream))
	o.text("node", c.Node)
	o.some("cluster", c.Cluster)
	o.text("peer", c.Peer)
	o.some("identity", c.Identity)
	o.text("protocol", c.Protocol)
	o.time("since", c.Since)
	o.text("sync", string(c.Sync))
	if o.key("types"); c.Types == nil {
		*o = append(*o, "null"...)
	} else {
		o.list(len(c.Types), func(i int) { o.typ(&c.Types[i]) })
	}
	o.number("responses", c.Responses)
	o.number("bytes", c.Bytes)
	o.number("nacks", c.Nacks)
	o.close()
}

func (o *object) typ(t *session.ClientType) {
	o.open()
	o.text("type", string(t.Type))
	o.some("group", t.Group)
	o.some("refused", t.Refused)
	o.key("wildcard")
	*o = strconv.AppendBool(*o, t.Wildcard)
	o.number("names", int64(t.Names))
	o.number("resolved", int64(t.Resolved))
	o.text("sync", string(t.Sync))
	o.someNumber("behind", t.Behind)
	o.someTime("since", t.Since)
	o.someTime("last_sent", t.LastSent)
	o.someTime("last_ack", t.LastAck)
	o.some("version", t.Version)
	o.some("nonce", t.Nonce)
	o.some("nack", t.Nack)
	o.someTime("nacked_at", t.NackedAt)
	o.someNumber("nacked", t.Nacked)
	o.someTexts("nacked_names", t.NackedNames)
	o.close()
}

func (o *object) open()  { *o = append(*o, '{') }
func (o *object) close() { *o = append(*o, '}') }

// key begins a field.
func (o *object) key(name string) {
	if (*o)[len(*o)-1] != '{' {
		*o = append(*o, ',')
	}
	*o = append(append(append(*o, '"'), name...), '"', ':')
}

func (o *object) text(key, s string) {
	o.key(key)
	*o = readable.AppendText(*o, s)
}

func (o *object) number(key string, n int64) {
	o.key(key)
	*o = strconv.AppendInt(*o, n, 10)
}

func (o *object) time(key string, t time.Time) {
	o.key(key)
	*o = append(t.AppendFormat(append(*o, '"'), time.RFC3339Nano), '"')
}

// Of these nothing is written if there is nothing.

func (o *object) some(key, s string) {
	if s != "" {
		o.text(key, s)
	}
}

func (o *object) someNumber(key string, n int) {
	if n != 0 {
		o.number(key, int64(n))
	}
}

func (o *object) someTime(key string, t time.Time) {
	if !t.IsZero() {
		o.time(key, t)
	}
}

func (o *object) someTexts(key string, all []string) {
	if len(all) == 0 {
		return
	}
	o.key(key)
	o.list(len(all), func(i int) { *o = readable.AppendText(*o, all[i]) })
}

// list writes a list of n elements, each with element.
func (o *object) list(n int, element func(i int)) {
	*o = append(*o, '[')
	for i := range n {
		if i > 0 {
			*o = append(*o, ',')
		}
		element(i)
	}
	*o = append(*o, ']')
}
