"""An agent for Amazon Bedrock AgentCore. It counts its calls."""
from bedrock_agentcore import BedrockAgentCoreApp

app = BedrockAgentCoreApp()
calls = 0


@app.entrypoint
async def invoke(payload, context):
    global calls
    calls += 1
    return {"message": "Hello, %s!" % payload["name"], "calls": calls}


app.run()
