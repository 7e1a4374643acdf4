/** Handlers that cannot hide what happened to them: how often they ran is in their memory or in a file of the host. */
export const CODE = `
import os, time, uuid

BOOT = uuid.uuid4().hex
seen = set()

def count(event, context):
    again = event["id"] in seen
    seen.add(event["id"])
    time.sleep(event.get("ms", 0) / 1000)
    return {"boot": BOOT, "n": len(seen), "again": again}

def generation(event, context):
    return int(os.environ["GENERATION"])

def mark(event, context):
    with open("/marks/" + event["mark"], "a") as file:
        file.write("run\\n")
    time.sleep(event.get("ms", 0) / 1000)
    return event["mark"]
`;
