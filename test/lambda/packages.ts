import { InstalledPackages } from '../parts/installed-packages.ts';

/** Clients of AWS Lambda, and what runs inside functions of it. */
const RELEASES = {
  python: ['boto3==1.44.8', 'awslambdaric==4.2.2'],
  node: ['@aws-sdk/client-lambda@3.1164.0'],
  'code-web': ['mangum==0.22.0', 'fastapi==0.165.0'],
  'code-powertools': ['aws-lambda-powertools==3.37.0'],
  'node-web': ['serverless-http@4.0.0', 'express@5.3.0'],
} as const;

export const lambdaPackages = new InstalledPackages<keyof typeof RELEASES>('lambda', RELEASES);
