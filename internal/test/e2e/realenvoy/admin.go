package realenvoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Admin reads the admin interface of an Envoy.
type Admin struct{ http *http.Client }

// Attach reads that of an Envoy that somebody else has started; address is host:port,
// or the path of a Unix socket.
func Attach(address string) *Admin {
	if strings.HasPrefix(address, "/") {
		return newAdmin("unix", address)
	}
	return newAdmin("tcp", address)
}

// Get is the text at a path.
func (a *Admin) Get(path string) (string, error) {
	resp, err := a.http.Get("http://localhost" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", path, resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return string(text), err
}

func (a *Admin) decode(path string, to any) error {
	text, err := a.Get(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Ready is nil once the Envoy is ready: LIVE at /ready.
func (a *Admin) Ready() error {
	_, err := a.Get("/ready")
	return err
}

// Stats are the counters and gauges whose names match a regular expression; an empty
// one is all.
func (a *Admin) Stats(filter string) (map[string]int64, error) {
	text, err := a.Get("/stats?filter=" + url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	stats := make(map[string]int64)
	for line := range strings.Lines(text) {
		// A name may have colons, a value has none.
		i := strings.LastIndex(line, ": ")
		if i < 0 {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(line[i+2:]), 10, 64); err == nil {
			stats[line[:i]] = n
		}
	}
	return stats, nil
}

// Sum adds up the stats whose last part is one of these, such as "no_cluster".
func (a *Admin) Sum(last ...string) (int64, error) {
	quoted := make([]string, len(last))
	for i, name := range last {
		quoted[i] = regexp.QuoteMeta(name)
	}
	stats, err := a.Stats(`\.(` + strings.Join(quoted, "|") + ")$")
	total := int64(0)
	for _, n := range stats {
		total += n
	}
	return total, err
}

// Clusters are the addresses of each cluster's endpoints, as /clusters has them.
func (a *Admin) Clusters() (map[string][]string, error) {
	type socket struct {
		Address string `json:"address"`
		Port    int    `json:"port_value"`
	}
	var found struct {
		Statuses []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Address struct {
					Socket socket `json:"socket_address"`
					Pipe   struct {
						Path string `json:"path"`
					} `json:"pipe"`
				} `json:"address"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := a.decode("/clusters?format=json", &found); err != nil {
		return nil, err
	}
	clusters := make(map[string][]string)
	for _, c := range found.Statuses {
		clusters[c.Name] = []string{}
		for _, h := range c.Hosts {
			address := h.Address.Pipe.Path
			if s := h.Address.Socket; s.Address != "" {
				address = s.Address + ":" + strconv.Itoa(s.Port)
			}
			clusters[c.Name] = append(clusters[c.Name], address)
		}
	}
	return clusters, nil
}

// Address is where a listener listens, which the system may have chosen.
func (a *Admin) Address(listener string) (string, error) {
	var found struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := a.decode("/listeners?format=json", &found); err != nil {
		return "", err
	}
	for _, l := range found.Statuses {
		if l.Name == listener {
			return l.Local.Socket.Address + ":" + strconv.Itoa(l.Local.Socket.Port), nil
		}
	}
	return "", errors.New("no listener " + listener)
}
