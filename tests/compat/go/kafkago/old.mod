module barnabas/tests/kafkago

go 1.26

require github.com/segmentio/kafka-go v0.2.0

require (
	github.com/frankban/quicktest v1.14.6 // indirect
	github.com/golang/snappy v1.0.0 // indirect
	github.com/pierrec/lz4 v2.6.1+incompatible // indirect
	golang.org/x/net v0.62.0 // indirect
)
