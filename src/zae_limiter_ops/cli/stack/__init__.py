"""The commands that deploy, upgrade, show and delete a limiter on AWS."""
