package passthrough

import (
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// nodeField is the number of LoadStatsRequest.node (lrs.proto).
const nodeField = 1

// NodeIn returns the node in a load report, in wire form; nil: there is none. A field that comes several times is one
// message in parts. The rest of the report is not looked at.
func NodeIn(report []byte) (node []byte, err error) {
	for len(report) > 0 {
		number, kind, n := protowire.ConsumeTag(report)
		if n < 0 {
			return nil, unreadable(n)
		}
		report = report[n:]
		if n = protowire.ConsumeFieldValue(number, kind, report); n < 0 {
			return nil, unreadable(n)
		}
		if number == nodeField && kind == protowire.BytesType {
			part, _ := protowire.ConsumeBytes(report)
			if node == nil {
				node = part[:len(part):len(part)] // a further part makes a copy
			} else {
				node = append(node, part...)
			}
		}
		report = report[n:]
	}
	return node, nil
}

// ReadNode decodes a node.
func ReadNode(wire []byte) (*core.Node, error) {
	node := new(core.Node)
	if err := proto.Unmarshal(wire, node); err != nil {
		return nil, fmt.Errorf("the node of a load report cannot be read: %w", err)
	}
	return node, nil
}

func unreadable(n int) error {
	return fmt.Errorf("a load report is no LoadStatsRequest: %w", protowire.ParseError(n))
}
