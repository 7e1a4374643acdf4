import { InstalledPackages } from '../parts/installed-packages.ts';

/**
 * Releases of the SDKs of E2B and of MCP that must work unmodified: the newest and the oldest supported ones.
 * Those that begin with `code-` are installed as a directory that a sandbox runs as code.
 */
const RELEASES = {
  python: ['e2b==2.63.0', 'e2b-code-interpreter==2.11.5'],
  'python-old': ['e2b==2.8.0'],
  agents: ['openai-agents==0.24.0', 'langchain-e2b==0.0.5', 'e2b==2.31.0', 'e2b-code-interpreter==2.8.1'],
  node: ['e2b@2.51.0', '@e2b/code-interpreter@2.8.0'],
  'node-old': ['e2b@2.14.1'],
  'mcp-python': ['mcp==2.3.0'],
  'mcp-python-old': ['mcp==1.30.0'],
  'node-mcp': ['@modelcontextprotocol/client@2.4.0'],
  'node-mcp-old': ['@modelcontextprotocol/sdk@1.32.2'],
  'code-charts': ['matplotlib==3.10.7'],
  'code-functions': ['functions-framework==3.10.2'],
  'code-agentcore': ['bedrock-agentcore==1.25.0'],
  'node-functions': ['@google-cloud/functions-framework@5.0.5'],
} as const;

/** Name of an installation of SDKs. */
export type Environment = keyof typeof RELEASES;

export const e2bPackages = new InstalledPackages<Environment>('e2b', RELEASES);
