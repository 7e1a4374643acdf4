import { describeFlow } from './flow.ts';

describeFlow('agent frameworks on E2B sandboxes', { file: 'frameworks.py', environment: 'agents' });
