package admin

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Lists are paged: limit entries at most, and a token with which the next page is
// asked for.
const (
	defaultLimit = 1000
	maxLimit     = 10000
)

func limitOf(req *http.Request) (int, error) {
	s := req.URL.Query().Get("limit")
	if s == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("limit is %q; use a number from 1 to %d", s, maxLimit)
	}
	return n, nil
}

func badRequest(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}

// knows refuses other query parameters than these: otherwise a misspelt filter would be
// ignored.
func knows(req *http.Request, known ...string) error {
	if _, err := url.ParseQuery(req.URL.RawQuery); err != nil { // Query leaves out what it cannot read
		return fmt.Errorf("the query cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(req.URL.Query())) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown parameter %q; %s knows %s", name, req.URL.Path, strings.Join(known, ", "))
		}
	}
	return nil
}

// paging is what a request asks of a list of names: how many, of which type ("" for all), and from where on.
type paging struct {
	limit int
	typ   cache.TypeURL
	from  cursor
}

// pagingOf reads it. Beside it the request may have the other parameters.
func pagingOf(req *http.Request, others ...string) (p paging, err error) {
	if err := knows(req, append(append([]string{"type"}, others...), "limit", "continue")...); err != nil {
		return p, err
	}
	if p.limit, err = limitOf(req); err != nil {
		return p, err
	}
	if p.typ, err = typeOf(req); err != nil {
		return p, err
	}
	if token := req.URL.Query().Get("continue"); token != "" {
		p.from, err = cursorOf(token)
	}
	return p, err
}

// cursor is where a page of resources ends.
type cursor struct {
	Group    string        `json:"g"`
	Type     cache.TypeURL `json:"t"`
	Name     string        `json:"n"`
	Wildcard bool          `json:"w"`
}

func (c cursor) token() string {
	data, _ := json.Marshal(c) // strings and a bool
	return base64.RawURLEncoding.EncodeToString(data)
}

func cursorOf(token string) (c cursor, err error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(data, &c) != nil {
		return c, fmt.Errorf("continue is %q; use what the page before gave", token)
	}
	return c, nil
}

// typeOf is the type that a request is about, or "" for all.
func typeOf(req *http.Request) (cache.TypeURL, error) {
	t := req.URL.Query().Get("type")
	if t == "" {
		return "", nil
	}
	url, ok := config.TypeURL(t)
	if !ok {
		return "", fmt.Errorf("type is %q; use a short name such as CDS, or a type URL", t)
	}
	return cache.TypeURL(url), nil
}

// groupOf is the group that a request names. Without a name, as in group=, it is the default one.
func groupOf(query url.Values) string { return cmp.Or(query.Get("group"), defaultGroup) }

// inGroup reports whether a request is about a group; without the parameter it is
// about all groups.
func inGroup(req *http.Request, name string) bool {
	query := req.URL.Query()
	return !query.Has("group") || name == groupOf(query)
}
