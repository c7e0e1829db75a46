// A leaderboard by ioredis; a report reads it by CQL, and a web page follows it by HTTP.

import cassandra from "cassandra-driver";
import { Redis } from "ioredis";

const ADDR = process.env.ADDR ?? "127.0.0.1:6379";
const CQL_ADDR = process.env.CQL_ADDR ?? "127.0.0.1:9042";
const HTTP_ADDR = process.env.HTTP_ADDR ?? "127.0.0.1:8080";
const KEY = "leaderboard";

const [host, port] = ADDR.split(":");
const redis = new Redis({ host, port: Number(port) });

/** Adds points, and notifies the page when there is another leader. */
async function score(player, points) {
    const [before] = await redis.zrevrange(KEY, 0, 0);
    await redis.zincrby(KEY, points, player);
    const [after] = await redis.zrevrange(KEY, 0, 0);
    if (after !== before) {
        await redis.publish("leaders", after);
    }
}

/** The messages of a channel, as a browser would get them by EventSource. */
async function* follow(channel, signal) {
    const answer = await fetch(`http://${HTTP_ADDR}/subscribe/${channel}`, { signal });
    let text = "";
    for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
        const lines = (text + part).split("\n");
        text = lines.pop();
        for (const line of lines.filter((line) => line.startsWith("data: "))) {
            yield line.slice("data: ".length).split(",");
        }
    }
}

await redis.del(KEY);

// The first event confirms the subscription, so that no message is missed.
const page = new AbortController();
const messages = follow("leaders", page.signal);
const { value: confirmation } = await messages.next();
console.log("page:", confirmation.join(" "));

await score("ada", 10);
await score("grace", 25);
await score("ada", 5);
await score("ada", 20);
for (let leaders = 0; leaders < 3; leaders += 1) {
    const { value } = await messages.next();
    console.log("page: the leader is", value[2]);
}
page.abort();

console.log("Redis:", (await redis.zrevrange(KEY, 0, -1, "WITHSCORES")).join(" "));

// The same sorted set as rows, in the order of the members.
const cql = new cassandra.Client({ contactPoints: [CQL_ADDR], localDataCenter: "datacenter1" });
const query = "SELECT member, score FROM redis.zsets WHERE key = ?";
const { rows } = await cql.execute(query, [Buffer.from(KEY)], { prepare: true });
for (const row of rows) {
    console.log("CQL:", row.member.toString(), row.score);
}

await cql.shutdown();
redis.disconnect();
