package upstream

import "testing"

// What is logged about an entry that has left the list meanwhile, as after two reloads at once,
// ends nothing.
func TestConn_OfAnEntryThatHasLeft(t *testing.T) {
	first := &Conn{endpoint: Endpoint{Name: "a:1"}}
	second := &Conn{endpoint: Endpoint{Name: "b:1"}}
	c := &Client{ways: ways{conns: []*Conn{first, second}}}
	for entry, want := range map[string]*Conn{"a:1": first, "b:1": second, "gone:1": first} {
		if got := c.conn(entry); got != want {
			t.Errorf("the Conn of %s is that of %s, want that of %s", entry, got.endpoint.Name, want.endpoint.Name)
		}
	}
}
