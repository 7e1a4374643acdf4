import { describeFlow } from '../e2b/flow.ts';
import { mcpEnvironment } from './mcp-service.ts';

const env = mcpEnvironment;
describeFlow('the Python SDK of MCP', { file: 'mcp-new.py', environment: 'mcp-python', env });
describeFlow('the Python SDK of MCP, first generation', { file: 'mcp-old.py', environment: 'mcp-python-old', env });
describeFlow('the TypeScript client of MCP', { file: 'mcp.mjs', environment: 'node-mcp', env });
describeFlow('the TypeScript SDK of MCP, first generation', { file: 'mcp-old.mjs', environment: 'node-mcp-old', env });
