package xdstest

import (
	"fmt"
	"strconv"
	"strings"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
)

// Status is a gRPC status as transcripts write it: CODE "message".
type Status struct {
	Code    rpccode.Code
	Message string
}

func parseCode(s string) (rpccode.Code, error) {
	n, ok := rpccode.Code_value[s]
	if !ok {
		return 0, fmt.Errorf("%q is no gRPC status code; write it like NOT_FOUND", s)
	}
	return rpccode.Code(n), nil
}

// join puts sep between code and message; an empty message is left out.
func (s Status) join(sep string) string {
	if s.Message == "" {
		return s.Code.String()
	}
	return s.Code.String() + sep + strconv.Quote(s.Message)
}

func (s Status) proto() *rpcstatus.Status {
	return &rpcstatus.Status{Code: int32(s.Code), Message: s.Message}
}

func statusOf(err error) Status {
	p := status.Convert(err).Proto()
	return protoStatus(p)
}

// protoStatus reads a status. The protobuf library varies the blanks in its messages from build to build, on purpose.
func protoStatus(p *rpcstatus.Status) Status {
	return Status{Code: rpccode.Code(p.GetCode()), Message: strings.ReplaceAll(p.GetMessage(), "\u00a0", " ")}
}
