// Readings of sensors in a CQL table, written by the collector that holds a lock of Redis, and read
// as JSON by HTTP.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/gocql/gocql"
	"github.com/redis/go-redis/v9"
)

func address(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// lead returns whether this collector holds the lock. It expires if the collector crashes.
func lead(client *redis.Client, collector string) bool {
	isTaken, err := client.SetNX(context.Background(), "collector", collector, time.Minute).Result()
	check(err)
	return isTaken
}

// readings asks for the newest readings of a sensor by HTTP, without a driver.
func readings(sensor int) (rows [][]any) {
	request, err := json.Marshal(map[string]any{
		"statement": "SELECT at, celsius FROM weather.readings WHERE sensor = ? LIMIT 2",
		"values":    []any{sensor},
	})
	check(err)
	url := "http://" + address("HTTP_ADDR", "127.0.0.1:8080") + "/cql"
	answer, err := http.Post(url, "application/json", bytes.NewReader(request))
	check(err)
	defer answer.Body.Close()
	var result struct{ Rows [][]any }
	check(json.NewDecoder(answer.Body).Decode(&result))
	return result.Rows
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: address("ADDR", "127.0.0.1:6379")})
	defer client.Close()
	check(client.Del(context.Background(), "collector").Err())
	fmt.Println("a leads:", lead(client, "a"))
	fmt.Println("b leads:", lead(client, "b"))

	session, err := gocql.NewCluster(address("CQL_ADDR", "127.0.0.1:9042")).CreateSession()
	check(err)
	defer session.Close()
	for _, statement := range []string{
		`CREATE KEYSPACE IF NOT EXISTS weather
		 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`,
		`CREATE TABLE IF NOT EXISTS weather.readings (sensor int, at timestamp, celsius double,
		 PRIMARY KEY (sensor, at)) WITH CLUSTERING ORDER BY (at DESC)`,
	} {
		check(session.Query(statement).Exec())
	}

	// A batch is one record in the log: after a crash all of its rows are there, or none.
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	batch := session.NewBatch(gocql.UnloggedBatch)
	for minute, celsius := range []float64{20.5, 20.75, 21} {
		at := start.Add(time.Duration(minute) * time.Minute)
		// A year later the row is removed.
		batch.Query(`INSERT INTO weather.readings (sensor, at, celsius) VALUES (?, ?, ?)
			USING TTL 31536000`, 7, at, celsius)
	}
	check(session.ExecuteBatch(batch))
	for _, row := range readings(7) {
		fmt.Println("HTTP:", row[0], row[1])
	}
}
