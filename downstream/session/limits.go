package session

import "fmt"

// The limits on what a client may make the relay keep (VALID-8, threat T10). A request is checked
// before anything of it is taken in, so that nothing beyond a limit reaches upstream.

// The limits without a setting: the types of one stream, of which the protocol has a dozen, and,
// in bytes, a type's name, a resource's version and a node.
const (
	maxTypes   = 256
	maxTypeURL = 256
	maxVersion = 4 << 10
	maxNode    = 256 << 10
)

func (s *Session) checkNames(lists ...[]string) *End {
	for _, names := range lists {
		for _, name := range names {
			if len(name) > s.config.MaxName {
				return tooLong("resource name", name, s.config.MaxName)
			}
		}
	}
	return nil
}

func tooLong(what, name string, limit int) *End {
	return &End{OverLimit, fmt.Sprintf("%s of %d bytes (%.40q...) exceeds the limit of %d; raise downstream.max_name_bytes", what, len(name), name, limit)}
}

// checkVersions checks what a client came with, which is kept until everything that it asks for
// is resolved. That may be never.
func (s *Session) checkVersions(versions map[string]string) *End {
	for name, version := range versions {
		if end := s.checkNames([]string{name}); end != nil {
			return end
		}
		if len(version) > maxVersion {
			return &End{OverLimit, fmt.Sprintf("version of %d bytes (%.40q...) exceeds the limit of %d", len(version), version, maxVersion)}
		}
	}
	return nil
}

// maxVersions bounds how many resource versions a stream may come with, over all types, unless it may have more names.
const maxVersions = 1_000_000

// checkVersionCount bounds the versions that the client came with and that are not reconciled yet, beside more.
func (s *Session) checkVersionCount(more int) *End {
	for _, st := range s.states {
		if e := st.base().exact; e != nil {
			more += e.claims
		}
	}
	if limit := max(maxVersions, s.maxNames()); more > limit {
		return &End{OverLimit, fmt.Sprintf("%d resource versions on one stream exceed the limit of %d", more, limit)}
	}
	return nil
}
