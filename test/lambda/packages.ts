import { InstalledPackages } from '../parts/installed-packages.ts';

/** Clients of AWS Lambda, and what runs inside functions of it. */
const RELEASES = {
  python: ['boto3==1.44.8', 'awslambdaric==4.2.2'],
  node: ['@aws-sdk/client-lambda@3.1164.0'],
} as const;

export const lambdaPackages = new InstalledPackages<keyof typeof RELEASES>('lambda', RELEASES);
